// Characters of a query, read one piece at a time. Every piece knows its place, so that a problem can be shown there.

export interface Piece {
  text: string;
  isQuoted: boolean;
  begin: number;
  end: number;
}

/** A part of a query that means nothing: where it is, and how to write it. */
export class QueryProblem extends Error {
  constructor(message: string, readonly begin: number, readonly end: number) {
    super(message);
  }
}

export type Operator = "<" | "<=" | ">" | ">=" | "=" | "!=" | ":";

export class Scanner {
  place = 0;

  constructor(readonly text: string) {}

  get isAtEnd(): boolean {
    return this.place >= this.text.length;
  }

  skipSpace(): void {
    while (!this.isAtEnd && /\s/.test(this.text[this.place])) this.place++;
  }

  takes(char: string): boolean {
    if (this.text[this.place] !== char) return false;
    this.place++;
    return true;
  }

  /** The operator here, if there is one. */
  operator(): Operator | null {
    const match = /^(<=|>=|!=|[<>=:])/.exec(this.text.slice(this.place, this.place + 2));
    if (!match) return null;
    this.place += match[1].length;
    return match[1] as Operator;
  }

  /** A quoted text, or the characters up to a space or one of `ends`. */
  piece(ends: string): Piece {
    const begin = this.place;
    if (this.takes('"')) return this.quoted(begin);
    while (!this.isAtEnd && !/\s/.test(this.text[this.place]) && !ends.includes(this.text[this.place])) this.place++;
    return { text: this.text.slice(begin, this.place), isQuoted: false, begin, end: this.place };
  }

  private quoted(begin: number): Piece {
    let text = "";
    while (!this.isAtEnd) {
      const char = this.text[this.place++];
      if (char === '"') return { text, isQuoted: true, begin, end: this.place };
      const next = this.text[this.place];
      if (char === "\\" && (next === '"' || next === "\\")) text += this.text[this.place++];
      else text += char;
    }
    throw new QueryProblem('the text begins with " but does not end with one', begin, this.text.length);
  }
}

/** A text as a query writes it: in quotes, unless it is a plain word. */
export function written(text: string): string {
  return /^[\w./-]+$/.test(text) && !text.startsWith("-") ? text : `"${text.replace(/[\\"]/g, "\\$&")}"`;
}
