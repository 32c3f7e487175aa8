/** Pages of a long list, read as they are asked for. */
import { html } from "../lib/html.js";
import { changed } from "../lib/router.js";

/** Links to the beginning and to the next page. `next` is the cursor of the next one, or nothing. */
export const More = ({ route, param, next, first = "First", following = "Next" }) =>
  (next || route.params[param]) &&
  html`<nav class="tools" aria-label="Pages">
    ${route.params[param] && html`<a class="button" href=${changed(route, { [param]: "" })}>${first}</a>`}
    ${next && html`<a class="button" href=${changed(route, { [param]: next })}>${following}</a>`}
  </nav>`;
