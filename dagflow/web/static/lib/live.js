/** The stream of events of the server, and whether the page is connected to it. */
import { useEffect, useState } from "./html.js";

/** A connection that says nothing for so long is taken for lost; the server sends something every few seconds. */
const SILENCE_MS = 20_000;
/** An answer that takes longer is told to be late. */
const LATE_MS = 10_000;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

/**
 * Follows the server's events, and connects again after each loss.
 *
 * A browser has six connections to a server for all of its tabs, and a stream of events takes one of them: a tab that is
 * hidden gives it back, and so does one that waits long for an answer.
 *
 * `state` is "connecting", "connected", "lost", "late" or "off"; `since` is when the last event came, in milliseconds,
 * or when the late answer was asked for.
 */
export class Live {
  constructor(url) {
    this.url = url;
    this.state = url ? "connecting" : "off";
    this.since = Date.now();
    this.listeners = new Set();
    this.losses = 0;
    this.holds = new Set();
    if (!url) return;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.hold("hidden") : this.release("hidden")));
    if (document.hidden) this.hold("hidden");
    else this.connect();
  }

  /** Give the connection back until `reason` is released. */
  hold(reason) {
    this.holds.add(reason);
    clearTimeout(this.timer);
    this.source?.close();
  }

  release(reason) {
    if (!this.holds.delete(reason) || this.holds.size) return;
    // What is shown is loaded again, as after a loss: changes were not heard meanwhile.
    this.losses ||= 1;
    this.connect();
  }

  /** The answer to a request. While it is late, the page says so, and leaves its connection to the request. */
  async answered(request) {
    const asked = Date.now();
    const timer = setTimeout(() => {
      this.hold(request);
      this.state = "late";
      this.since = Math.min(this.since, asked);
      for (const listener of this.listeners) listener({ type: "late" });
    }, LATE_MS);
    try {
      return await request;
    } finally {
      clearTimeout(timer);
      this.release(request);
    }
  }

  connect() {
    this.source = new EventSource(this.url);
    this.source.onopen = () => this.hear({ type: this.losses ? "reconnected" : "connected" });
    this.source.onmessage = (message) => this.hear(JSON.parse(message.data));
    for (const type of ["change", "beat"]) {
      this.source.addEventListener(type, (message) => this.hear({ type, ...JSON.parse(message.data || "{}") }));
    }
    this.source.onerror = () => this.lose();
    this.wait();
  }

  wait() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.lose(), SILENCE_MS);
  }

  hear(event) {
    this.wait();
    this.losses = 0;
    this.since = Date.now();
    this.state = "connected";
    for (const listener of this.listeners) listener(event);
  }

  lose() {
    clearTimeout(this.timer);
    this.source.close();
    if (this.state !== "lost") {
      this.state = "lost";
      for (const listener of this.listeners) listener({ type: "lost" });
    }
    const delay = RETRY_MS[Math.min(this.losses, RETRY_MS.length - 1)];
    this.losses += 1;
    this.timer = setTimeout(() => this.connect(), delay);
  }

  /** Call `listener` with every event; returns a function that ends it. */
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** State of the connection, for a component that shows it. */
export function useConnection(live) {
  const [shown, setShown] = useState({ state: live.state, since: live.since });
  useEffect(() => live.listen(() => setShown({ state: live.state, since: live.since })), [live]);
  return shown;
}
