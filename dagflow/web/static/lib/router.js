/** The address: "#/apps/NAME/SCREEN?filter=…&selected=…". Every view can be linked to. */
import { useEffect, useState } from "./html.js";
import { decoded as decodedQuery, encoded } from "./query.js";

/**
 * @typedef {object} Route
 * @property {string} app Id of the app; "" on the fleet.
 * @property {string} screen Name of the screen.
 * @property {Record<string, string>} params Filters and selection.
 */

/** The route of a hash. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  const params = decodedQuery(query);
  if (parts[0] !== "apps" || !parts[1]) return { app: "", screen: "fleet", params };
  return { app: parts[1], screen: parts[2] || "graph", params };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The hash of a screen. Empty parameters are left out. */
export function href(app, screen, params = {}) {
  const query = encoded(params);
  const behind = query && `?${query}`;
  return app ? `#/apps/${encodeURIComponent(app)}/${screen}${behind}` : `#/${behind}`;
}

/** The hash of the same screen with some parameters changed. */
export const changed = (route, params) => href(route.app, route.screen, { ...route.params, ...params });

/** Go to a hash. With `isTyping` no step is added to the history: one would be made by every key. */
export function go(hash, { isTyping = false } = {}) {
  if (hash === location.hash) return;
  if (!isTyping) {
    location.hash = hash;
    return;
  }
  history.replaceState(null, "", hash);
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/** The route as it is now. */
export function useRoute() {
  const [route, setRoute] = useState(() => parse(location.hash));
  useEffect(() => {
    const update = () => setRoute(parse(location.hash));
    window.addEventListener("hashchange", update);
    return () => window.removeEventListener("hashchange", update);
  }, []);
  return route;
}
