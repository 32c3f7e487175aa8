/** Line icons of 16 by 16. */
import { html } from "../lib/html.js";

const PATHS = {
  fleet: "M2 3h12v4H2zM2 9h12v4H2zM4.5 5h1M4.5 11h1",
  graph: "M3.5 8h2.5c2 0 1.5-4 3.5-4h2M6 8c2 0 1.5 4 3.5 4h2M2 6.5h2v3H2zM12 2.500h2v3h-2zM12 10.500h2v3h-2z",
  windows: "M2 4h6M5 8h6M8 12h6",
  files: "M4 2h5l3 3v9H4zM9 2v3h3",
  rejects: "M8 2l6.500 11.500h-13zM8 6.500v3M8 11.500v.3",
  tables: "M2 3h12v10H2zM2 6.500h12M6 6.500V13",
  scaling: "M2 13V9h3V6h4V3h5",
  app: "M5.500 4L2 8l3.500 4M10.500 4L14 8l-3.500 4",
  log: "M3 4h10M3 8h10M3 12h6",
  search: "M7 2.500a4.500 4.500 0 1 1 0 9 4.500 4.500 0 0 1 0-9zM10.500 10.500L14 14",
  close: "M3.500 3.500l9 9M12.500 3.500l-9 9",
  dark: "M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z",
  light: "M8 5.200a2.800 2.800 0 1 1 0 5.600 2.800 2.800 0 0 1 0-5.600zM8 1.500v1.500M8 13v1.500M1.500 8H3M13 8h1.500M3.400 3.400l1 1M11.600 11.600l1 1M3.400 12.600l1-1M11.600 4.400l1-1",
};

export const Icon = ({ name }) =>
  html`<svg viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true">
    <path d=${PATHS[name]} />
  </svg>`;
