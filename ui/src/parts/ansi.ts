// Colours of terminal output (SGR), as pieces of text with classes; other control sequences are dropped.

export type Piece = { text: string; style: string };
const SEQUENCE = /\u001b(?:\[([0-9;:]*)m|\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const COLOURS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

export type Look = { colour: string; bold: boolean; dim: boolean; underline: boolean; italic: boolean };
export const PLAIN: Look = { colour: "", bold: false, dim: false, underline: false, italic: false };

/** Return the pieces of a line, and the look with which the next one begins. */
export function pieces(line: string, begin: Look = PLAIN): { pieces: Piece[]; end: Look } {
  const found: Piece[] = [];
  let look = begin;
  let at = 0;
  const add = (text: string) => {
    const shown = text.replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, "");
    if (shown) found.push({ text: shown, style: styleOf(look) });
  };
  for (const match of line.matchAll(SEQUENCE)) {
    add(line.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[1] !== undefined) look = changed(look, match[1].split(/[;:]/).map(Number));
  }
  add(line.slice(at));
  return { pieces: found, end: look };
}

/** Return a text without its control sequences. */
export function plain(text: string): string {
  return pieces(text).pieces.map((piece) => piece.text).join("");
}

function changed(look: Look, codes: number[]): Look {
  let next = { ...look };
  for (let i = 0; i < codes.length; i += 1) {
    const code = codes[i]!;
    if (code === 0 || Number.isNaN(code)) next = { ...PLAIN };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 22) next = { ...next, bold: false, dim: false };
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 39) next.colour = "";
    else if (code >= 30 && code <= 37) next.colour = COLOURS[code - 30]!;
    else if (code >= 90 && code <= 97) next.colour = `bright-${COLOURS[code - 90]!}`;
    else if (code === 38 || code === 48) i += codes[i + 1] === 5 ? 2 : codes[i + 1] === 2 ? 4 : 0;
  }
  return next;
}

function styleOf(look: Look): string {
  const names = [look.colour && `ansi-${look.colour}`, look.bold && "ansi-bold", look.dim && "ansi-dim", look.underline && "ansi-underline", look.italic && "ansi-italic"];
  return names.filter(Boolean).join(" ");
}
