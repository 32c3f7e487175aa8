/** Bytes of a record as text: what cannot be printed is shown as escapes, and never acts on the page. */
import { html } from "../lib/html.js";

/** @param {{bytes: Uint8Array}} props */
export function Raw({ bytes }) {
  const parts = [];
  let plain = "";
  const flush = () => {
    if (plain) parts.push(plain);
    plain = "";
  };
  const text = new TextDecoder("utf-8", { fatal: false });
  for (const character of text.decode(bytes)) {
    const code = character.codePointAt(0);
    const isOdd = code < 32 || (code >= 127 && code < 160) || code === 0xfffd || isControl(code);
    if (!isOdd) {
      plain += character;
      continue;
    }
    flush();
    parts.push(html`<span class="odd">${escaped(code)}</span>`);
  }
  flush();
  return html`<pre class="raw" tabindex="0" dir="ltr">${parts.length ? parts : html`<span class="odd">no bytes</span>`}</pre>`;
}

function escaped(code) {
  if (code === 10) return "\\n\n";
  if (code === 13) return "\\r";
  if (code === 9) return "\\t";
  if (code === 0xfffd) return "\ufffd";
  return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

const isControl = (code) => (code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f);

/** The bytes of a base64 text. */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
