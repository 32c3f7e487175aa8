/** Details of what is selected, beside the screen. Escape closes it, and the focus goes back to where it came from. */
import { html, useEffect, useLayoutEffect, useRef } from "../lib/html.js";
import { go } from "../lib/router.js";
import { Icon } from "./icons.js";

/** @param {{title: any, close: string, name: string, children: any}} props `close` is the hash without the panel. */
export function Panel({ title, close, name, children }) {
  const heading = useRef(null);
  const opener = useRef(null);
  // What useEffect returns runs a frame after the panel is gone: a key that is pressed in between would go nowhere.
  useLayoutEffect(() => {
    opener.current = document.activeElement;
    heading.current.focus({ preventScroll: true });
    return () => opener.current?.isConnected && opener.current.focus({ preventScroll: true });
  }, [name]);
  useEffect(() => {
    const onKey = (event) => event.key === "Escape" && !event.defaultPrevented && go(close);
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [close]);
  return html`<aside class="panel" aria-label=${name}>
    <header>
      <h2 tabindex="-1" ref=${heading}>${title}</h2>
      <a class="button icon" href=${close} aria-label="Close details" title="Close (Escape)"><${Icon} name="close" /></a>
    </header>
    ${children}
  </aside>`;
}

export const Section = ({ title, children }) => html`<section><h3>${title}</h3>${children}</section>`;

/** Names and values, one pair a line. Pairs without a value are left out. */
export const Facts = ({ of }) =>
  html`<dl class="facts-list">
    ${of
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}
  </dl>`;

/** Figures in a row. `items` are `[name, value, note]`. */
export const Cards = ({ items }) =>
  html`<dl class="cards">
    ${items
      .filter(Boolean)
      .map(([name, value, note, tone]) => html`<div class="card"><dt>${name}</dt><dd class=${tone ?? ""}>${value}${note && html`<span class="note">${note}</span>`}</dd></div>`)}
  </dl>`;
