/** The page: finds the screen of the address, and draws it in its frame. */
import { Shell } from "./components/shell.js";
import { Empty } from "./components/notice.js";
import { useResource } from "./lib/api.js";
import { visible } from "./lib/format.js";
import { html, render, useEffect, useRef } from "./lib/html.js";
import { useRoute } from "./lib/router.js";
import { applyTheme, useTheme } from "./lib/theme.js";
import { App } from "./screens/app.js";
import { Files } from "./screens/files.js";
import { Fleet } from "./screens/fleet.js";
import { GraphScreen } from "./screens/graph.js";
import { Log } from "./screens/log.js";
import { Rejects } from "./screens/rejects.js";
import { Scaling } from "./screens/scaling.js";
import { Tables } from "./screens/tables.js";
import { Windows } from "./screens/windows.js";

const SCREENS = {
  fleet: Fleet,
  graph: GraphScreen,
  windows: Windows,
  files: Files,
  rejects: Rejects,
  tables: Tables,
  scaling: Scaling,
  app: App,
  log: Log,
};

function Page() {
  const route = useRoute();
  const theme = useTheme();
  const apps = useResource("apps");
  const isFirst = useRef(true);
  // A new screen takes the focus, as a new page would: the next Tab is inside of it.
  useEffect(() => {
    if (!isFirst.current) document.getElementById("main")?.focus({ preventScroll: true });
    isFirst.current = false;
  }, [route.app, route.screen]);
  return html`<${Shell} route=${route} apps=${apps.data?.apps} takenMs=${apps.data?.time_ms} theme=${theme}>
    <${Content} key=${`${route.app}/${route.screen}`} ...${{ route, apps, theme: theme.theme }} />
  <//>`;
}

function Content({ route, apps, theme }) {
  const Screen = SCREENS[route.screen];
  const app = apps.data?.apps.find((each) => each.id === route.app);
  if (!Screen || (route.app && apps.data && !app)) {
    return html`<main class="main" id="main" tabindex="-1">
      <${Empty} title="There is no such page">The address names an app or a screen that is not here. <a href="#/">Go to the fleet</a>.<//>
    </main>`;
  }
  if (app?.state === "no run yet") {
    return html`<main class="main" id="main" tabindex="-1">
      <${Empty} title="No run yet">There is no journal at <code>${visible(app.checkpoint)}</code>. This page shows the run as soon as it begins: start it with <code>dagflow run</code>.<//>
    </main>`;
  }
  return html`<${Screen} ...${{ route, apps, app, theme }} />`;
}

applyTheme();
render(html`<${Page} />`, document.getElementById("app"));
