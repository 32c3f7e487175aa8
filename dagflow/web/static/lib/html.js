/** What every component draws with: preact, its hooks, and templates instead of a build step. */
import { h } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { Fragment, render } from "../vendor/preact.js";
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact_hooks.js";

/** A template of markup. Values are set as text and properties, so that no name or record becomes markup. */
export const html = htm.bind(h);
