/** A moment in local time, with UTC on hover; how long ago it was; an age that counts on by itself. */
import { duration, localTime, UNKNOWN, utcTime } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";

/** A moment in milliseconds since 1970. */
export const Time = ({ at }) =>
  at
    ? html`<time datetime=${new Date(at).toISOString()} title=${utcTime(at)}>${localTime(at)}</time>`
    : html`<span class="muted">${UNKNOWN}</span>`;

/** The clock, so that ages grow while nothing else happens. */
export function useNow(everyMs = 1000) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** Whole seconds, so that an age does not flicker. */
const age = (seconds) => (seconds < 60 ? `${seconds} s` : duration(seconds));

/** How long ago a moment was; with `isBare` only how long. */
export function Ago({ at, isBare = false }) {
  const now = useNow();
  if (!at) return html`<span class="muted">never</span>`;
  const seconds = Math.max(0, Math.floor((now - at) / 1000));
  return html`<time datetime=${new Date(at).toISOString()} title=${`${localTime(at)}, ${utcTime(at)}`}>
    ${isBare ? age(seconds) : seconds < 1 ? "now" : `${age(seconds)} ago`}
  </time>`;
}
