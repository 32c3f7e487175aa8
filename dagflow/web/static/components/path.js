/** A path on one line: where there is no room, its folder is cut and not its name. */
import { visible } from "../lib/format.js";
import { html } from "../lib/html.js";

export function Path({ of }) {
  const cut = of.replace(/\/+$/, "").lastIndexOf("/") + 1;
  return html`<span class="path" title=${visible(of)}><span class="folder">${visible(of.slice(0, cut))}</span><span class="file">${visible(of.slice(cut))}</span></span>`;
}
