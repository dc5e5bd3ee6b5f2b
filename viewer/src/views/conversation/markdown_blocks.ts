// Markdown read line by line into blocks: the parts of it that models write. Anything else stays a paragraph.

export type Block =
  | { kind: "paragraph"; text: string }
  | { kind: "heading"; level: number; text: string }
  | { kind: "code"; language: string; text: string }
  | { kind: "quote"; blocks: Block[] }
  | { kind: "list"; start: number | null; items: Block[][] }
  | { kind: "table"; head: string[]; rows: string[][] }
  | { kind: "rule" };

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\* *){3,}|(?:- *){3,}|(?:_ *){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 12;

export function blocksOf(text: string): Block[] {
  return read(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), 0);
}

function read(lines: string[], depth: number): Block[] {
  if (depth > DEEPEST) return [{ kind: "paragraph", text: lines.join("\n") }];
  const blocks: Block[] = [];
  let paragraph: string[] = [];
  const flush = () => {
    if (paragraph.length) blocks.push({ kind: "paragraph", text: paragraph.join("\n") });
    paragraph = [];
  };
  const add = (block: Block) => { flush(); blocks.push(block); };
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    const found = special(lines, at, paragraph.length > 0, depth);
    if (found) {
      add(found.block);
      at = found.end;
      continue;
    }
    if (line.trim() === "") flush();
    else paragraph.push(line);
    at += 1;
  }
  flush();
  return blocks;
}

interface Found {
  block: Block;
  end: number;
}

/** The block that begins at a line, unless it is a paragraph. */
function special(lines: string[], at: number, isInParagraph: boolean, depth: number): Found | null {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fenced(lines, at, fence[1], fence[2].trim());
  const heading = HEADING.exec(line);
  if (heading) return { block: { kind: "heading", level: heading[1].length, text: heading[2] ?? "" }, end: at + 1 };
  if (RULE.test(line)) return { block: { kind: "rule" }, end: at + 1 };
  if (QUOTE.test(line)) {
    let end = at;
    const inner: string[] = [];
    for (let found = QUOTE.exec(lines[end]); found; found = end < lines.length ? QUOTE.exec(lines[end]) : null) {
      inner.push(found[1]);
      end += 1;
    }
    return { block: { kind: "quote", blocks: read(inner, depth + 1) }, end };
  }
  const item = ITEM.exec(line);
  if (item && !(isInParagraph && (item[4] === "" || (/\d/.test(item[2]) && !/^1[.)]/.test(item[2]))))) return list(lines, at, depth);
  if (line.includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && DIVIDER.test(lines[at + 1])
    && cells(line).length === cells(lines[at + 1]).length) return table(lines, at);
  if (!isInParagraph && /^ {4}\S/.test(line)) return indented(lines, at);
  return null;
}

function fenced(lines: string[], at: number, fence: string, language: string): Found {
  let end = at + 1;
  const closing = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}\\s*$`);
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const indent = /^ */.exec(lines[at])![0].length;
  const text = lines.slice(at + 1, end).map((each) => each.slice(Math.min(indent, /^ */.exec(each)![0].length)));
  return { block: { kind: "code", language, text: text.join("\n") }, end: Math.min(end + 1, lines.length) };
}

function indented(lines: string[], at: number): Found {
  let end = at;
  while (end < lines.length && /^( {4}|\s*$)/.test(lines[end])) end += 1;
  const text = lines.slice(at, end).map((line) => line.slice(4)).join("\n").trimEnd();
  return { block: { kind: "code", language: "", text }, end };
}

function list(lines: string[], at: number, depth: number): Found {
  const first = ITEM.exec(lines[at])!;
  const isSame = (mark: string) => mark.at(-1) === first[2].at(-1);
  const items: Block[][] = [];
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || !isSame(item[2]) || RULE.test(lines[end])) break;
    const indent = item[1].length + item[2].length + Math.min(item[3].length || 1, 4);
    const inner = [item[4]];
    end += 1;
    for (; end < lines.length; end += 1) {
      const line = lines[end];
      if (line.trim() === "") {
        if (!(lines[end + 1] ?? "").startsWith(" ".repeat(indent)) && !isNext(lines[end + 1], isSame)) break;
        inner.push("");
      } else if (line.startsWith(" ".repeat(Math.min(indent, 2))) && /^ */.exec(line)![0].length >= Math.min(indent, 2))
        inner.push(line.slice(Math.min(indent, /^ */.exec(line)![0].length)));
      else if (ITEM.test(line) || inner.at(-1) === "" || special(lines, end, true, depth)) break;
      else inner.push(line);
    }
    items.push(read(inner, depth + 1));
    if (end < lines.length && lines[end].trim() === "") break;
  }
  return { block: { kind: "list", start: /\d/.test(first[2]) ? parseInt(first[2], 10) : null, items }, end };
}

function isNext(line: string | undefined, isSame: (mark: string) => boolean): boolean {
  const item = line === undefined ? null : ITEM.exec(line);
  return item !== null && isSame(item[2]);
}

function table(lines: string[], at: number): Found {
  let end = at + 2;
  while (end < lines.length && lines[end].trim() !== "" && lines[end].includes("|")) end += 1;
  const head = cells(lines[at]);
  const rows = lines.slice(at + 2, end).map((line) => head.map((_, column) => cells(line)[column] ?? ""));
  return { block: { kind: "table", head, rows }, end };
}

function cells(line: string): string[] {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}
