/** The stream of events of the server, and whether the page is connected to it. */
import { useEffect, useState } from "./html.js";

/** A connection that says nothing for so long is taken for lost; the server sends something every few seconds. */
const SILENCE_MS = 20_000;
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

/**
 * Follows the server's events, and connects again after each loss.
 *
 * `state` is "connecting", "connected", "lost" or "off"; `since` is when the last event came, in milliseconds.
 */
export class Live {
  constructor(url) {
    this.url = url;
    this.state = url ? "connecting" : "off";
    this.since = Date.now();
    this.listeners = new Set();
    this.losses = 0;
    if (url) this.connect();
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
