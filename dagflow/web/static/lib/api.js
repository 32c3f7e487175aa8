/** The one place where data comes from: the server's JSON, or what is embedded in a report. */
import { useCallback, useEffect, useRef, useState } from "./html.js";
import { Live } from "./live.js";
import { encoded } from "./query.js";

const BASE = "api/v1/";

/** An answer that is an error, with what to do about it. */
export class ApiError extends Error {
  constructor(message, hint = "", status = 0) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

const embedded = readEmbedded();

function readEmbedded() {
  const element = document.getElementById("dagflow-data");
  return element && JSON.parse(element.textContent);
}

/** Whether this page is a report: a file that holds its data, of one moment. */
export const isReport = embedded !== null;

/** The events of the server. A report has none. */
export const live = new Live(isReport ? "" : `${BASE}events`);

/** The path of a resource with its query. Empty parameters are left out. */
export function address(path, params = {}) {
  const query = encoded(params);
  return query ? `${path}?${query}` : path;
}

/** The JSON of a resource. */
export async function get(path, params, signal) {
  if (isReport) return fromReport(path, params);
  let answer;
  try {
    const asked = fetch(BASE + address(path, params), { signal, headers: { accept: "application/json" } });
    answer = await live.answered(asked);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer.", "Is dagflow ui still running? The page tries again by itself.");
  }
  const body = await answer.json().catch(() => ({}));
  if (answer.ok) return body;
  throw new ApiError(body.error?.message ?? `The server answered ${answer.status}.`, body.error?.hint, answer.status);
}

function fromReport(path, params) {
  const found = embedded.resources[address(path, params)] ?? embedded.resources[path];
  if (found !== undefined) return found;
  throw new ApiError("This is not part of the report.", "Open the checkpoint with dagflow ui to see it.");
}

/** How long an answer may be old when the server has told of changes: a burst of commits costs one request. */
const PAUSE_MS = 250;

/**
 * A resource that follows the server: loaded at once, and again after each change of its app.
 * Old data stay on the screen while new ones are on their way, and when the connection is lost.
 *
 * @param {string} path "" loads nothing.
 * @param {object} [params]
 * @param {{app?: string, isStill?: boolean}} [options] `app` limits the changes to those of one app; `isStill` to none.
 * @returns {{data?: any, error?: Error, reload: () => void}}
 */
export function useResource(path, params, { app = "", isStill = false } = {}) {
  const key = path && address(path, params);
  const [state, setState] = useState({ key: "" });
  const [round, setRound] = useState(0);
  const load = useRef({ isBusy: false, isOld: false, at: 0, timer: 0 }).current;
  const reload = useCallback(() => setRound((before) => before + 1), []);
  // A change during a request asks for another one after it: what comes may be older than the change.
  const refresh = useCallback(() => {
    if (load.isBusy) load.isOld = true;
    else if (!load.timer) load.timer = setTimeout(reload, Math.max(0, load.at + PAUSE_MS - Date.now()));
  }, []);
  useEffect(() => {
    if (!key) return undefined;
    const control = new AbortController();
    clearTimeout(load.timer);
    Object.assign(load, { isBusy: true, isOld: false, timer: 0 });
    const show = (shown) => {
      if (control.signal.aborted) return;
      Object.assign(load, { isBusy: false, at: Date.now() });
      setState((before) => ({ ...(before.key === key ? before : {}), error: undefined, ...shown, key }));
      if (load.isOld) refresh();
    };
    get(path, params, control.signal).then((data) => show({ data }), (error) => show({ error }));
    return () => control.abort();
  }, [key, round]);
  useEffect(() => {
    if (isStill || !key) return undefined;
    const isMine = (event) => event.type === "reconnected" || (event.type === "change" && (!app || !event.app || event.app === app));
    const unlisten = live.listen((event) => isMine(event) && refresh());
    return () => {
      clearTimeout(load.timer);
      load.timer = 0;
      unlisten();
    };
  }, [key, app, isStill]);
  return { ...(state.key === key ? state : {}), reload };
}
