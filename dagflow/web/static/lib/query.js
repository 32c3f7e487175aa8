/**
 * Queries of addresses, in which bytes that are no text stay what they are.
 *
 * The server gives such bytes of a name as lone surrogates, U+DC80 to U+DCFF. A browser would send U+FFFD for each.
 */

/** The query of some parameters, without "?"; empty ones are left out. */
export function encoded(params) {
  const kept = Object.entries(params).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return kept.map(([name, value]) => `${encodeURIComponent(name)}=${bytesOf(String(value))}`).join("&");
}

function bytesOf(text) {
  // Characters one by one: a surrogate without its other half is one by itself.
  const parts = [...text].map((part) => (isByte(part) ? `%${(part.charCodeAt(0) - 0xdc00).toString(16)}` : encodedPart(part)));
  return parts.join("");
}

const isByte = (part) => part.length === 1 && part >= "\udc80" && part <= "\udcff";

function encodedPart(part) {
  try {
    return encodeURIComponent(part);
  } catch {
    return "%EF%BF%BD";
  }
}

/** The parameters of a query. */
export function decoded(query) {
  const pairs = query.split("&").filter(Boolean).map((pair) => pair.split("="));
  return Object.fromEntries(pairs.map(([name, ...value]) => [textOf(name), textOf(value.join("="))]));
}

function textOf(part) {
  const bytes = [];
  for (const piece of part.replace(/\+/g, " ").match(/%[0-9a-f]{2}|[^%]+|%/gi) ?? []) {
    if (piece.length === 3 && piece[0] === "%") bytes.push(parseInt(piece.slice(1), 16));
    else bytes.push(...new TextEncoder().encode(piece));
  }
  return textOfBytes(bytes);
}

/** Bytes as text, each that is no UTF-8 as a lone surrogate. */
function textOfBytes(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let start = 0; start < bytes.length; ) {
    const [length, part] = characterAt(bytes, start, decoder);
    text += part;
    start += length;
  }
  return text;
}

function characterAt(bytes, start, decoder) {
  for (let length = 1; length <= 4 && start + length <= bytes.length; length += 1) {
    try {
      return [length, decoder.decode(new Uint8Array(bytes.slice(start, start + length)))];
    } catch {
      // More bytes may make a character of it.
    }
  }
  return [1, String.fromCharCode(0xdc00 + bytes[start])];
}
