/** The frame of every screen: navigation, the app and its state, the connection, the theme. */
import { isReport, live } from "../lib/api.js";
import { localTime, shortened, utcTime, visible } from "../lib/format.js";
import { html, useEffect, useRef } from "../lib/html.js";
import { useConnection } from "../lib/live.js";
import { href } from "../lib/router.js";
import { Icon } from "./icons.js";
import { State } from "./marks.js";
import { Ago } from "./time.js";

/** The screens of an app, in the order of the navigation. */
export const SCREENS = [
  ["graph", "Graph"],
  ["windows", "Windows"],
  ["files", "Files"],
  ["rejects", "Rejects"],
  ["tables", "Tables"],
  ["scaling", "Scaling"],
  ["app", "App"],
  ["log", "Log"],
];

/** @param {{route: object, apps: object[], takenMs: number, theme: object, children: any}} props */
export function Shell({ route, apps, takenMs, theme, children }) {
  const app = apps?.find((each) => each.id === route.app);
  const name = app ? app.app : route.app;
  const title = SCREENS.find(([screen]) => screen === route.screen)?.[1] ?? "Fleet";
  useEffect(() => {
    document.title = `${name ? `${visible(name)} · ` : ""}${title} · dagflow`;
  }, [name, title]);
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <div class="shell">
      <${Side} route=${route} apps=${apps} app=${app} />
      <div>
        <header class="top">
          <h1>${name ? html`${shortened(name, 60)} <span class="visually-hidden">${title}</span>` : "Fleet"}</h1>
          ${app && html`<${State} value=${app.state} />`}
          ${app && html`<span class="facts"><span>last commit <b><${Ago} at=${app.last_commit_ms} /></b></span></span>`}
          <span class="end">
            ${isReport && html`<span class="badge" title=${utcTime(takenMs)}>report of ${localTime(takenMs)}</span>`}
            <button class="button icon" onClick=${theme.toggle} aria-label=${`Use the ${theme.theme === "dark" ? "light" : "dark"} theme`} title="Dark or light">
              <${Icon} name=${theme.theme === "dark" ? "light" : "dark"} />
            </button>
          </span>
        </header>
        <${Connection} />
      </div>
      <div class="body">${children}</div>
    </div>`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Side({ route, apps, app }) {
  const nav = useRef(null);
  // Where the navigation is a strip, the current screen is scrolled into it.
  useEffect(() => {
    const current = nav.current.querySelector("[aria-current]");
    if (current) nav.current.scrollLeft = current.offsetLeft - nav.current.clientWidth / 2 + current.clientWidth / 2;
  }, [route.app, route.screen]);
  return html`<nav class="side" aria-label="Screens">
    <a class="brand" href="#/">
      <svg viewBox="0 0 16 16" aria-hidden="true"><g fill="none" stroke="var(--accent)" stroke-width="1.6"><path d="M3.5 8h3c2 0 2-4 4-4h2M6.500 8c2 0 2 4 4 4h2" /></g><g fill="var(--accent)"><circle cx="3" cy="8" r="2" /><circle cx="13" cy="4" r="2" /><circle cx="13" cy="12" r="2" /></g></svg>
      dagflow
    </a>
    <div class="nav" ref=${nav}>
      <a href="#/" aria-current=${route.screen === "fleet" ? "page" : undefined}><${Icon} name="fleet" />Fleet</a>
      ${route.app &&
      html`<span class="nav-title">${shortened(app ? app.app : route.app, 26)}</span>
        ${SCREENS.map(
          ([screen, label]) => html`<a href=${href(route.app, screen)} aria-current=${route.screen === screen ? "page" : undefined}>
            <${Icon} name=${screen} />${label}
          </a>`,
        )}`}
    </div>
    <p class="side-foot">${apps ? (apps.length === 1 ? "1 app" : `${apps.length} apps`) : ""}, read-only</p>
  </nav>`;
}

function Connection() {
  const { state, since } = useConnection(live);
  const [what, next] = state === "late" ? ["The server takes long to answer", "Waiting for it."] : ["Connection lost", "Trying to connect again."];
  return html`<div role="status" aria-live="polite">
    ${(state === "lost" || state === "late") &&
    html`<p class="connection"><span class="dot"></span>${what}, showing the state of <span title=${utcTime(since)}>${localTime(since)}</span>. ${next}</p>`}
  </div>`;
}
