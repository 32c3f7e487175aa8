/** A search field whose text is part of the address. The list follows a moment after the last key. */
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { changed, go } from "../lib/router.js";
import { Icon } from "./icons.js";

const QUIET_MS = 200;

/** @param {{route: object, param: string, label: string, placeholder: string}} props */
export function Search({ route, param, label, placeholder }) {
  const inAddress = route.params[param] ?? "";
  const [text, setText] = useState(inAddress);
  const timer = useRef(0);
  useEffect(() => setText(inAddress), [inAddress]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (event) => {
    const value = event.currentTarget.value;
    setText(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => go(changed(route, { [param]: value, after: "" }), { isTyping: true }), QUIET_MS);
  };
  return html`<label class="field search">
    <span class="visually-hidden">${label}</span>
    <${Icon} name="search" />
    <input type="search" value=${text} placeholder=${placeholder} onInput=${type} autocomplete="off" spellcheck=${false} />
  </label>`;
}

/** A choice that is part of the address. `options` are `[value, label]`. */
export const Choice = ({ route, param, label, options }) =>
  html`<label class="field">
    ${label}
    <select onChange=${(event) => go(changed(route, { [param]: event.currentTarget.value, after: "" }))}>
      ${options.map(([value, text]) => html`<option value=${value} selected=${(route.params[param] ?? "") === value}>${text}</option>`)}
    </select>
  </label>`;
