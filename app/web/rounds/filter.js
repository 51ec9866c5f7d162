// The filter of the table of rounds. Words by themselves are searched for: all of them must occur.
// With an operator it is an expression, read by hand and never run as code:
//
//   either  = both { "or" both }          both   = one { "and" one }
//   one     = "not" one | "(" either ")" | term
//   term    = name operator value | word or "text", which is searched for
//
// A text stands in double or single quotes; the words of a cause need none.
// A comparison with a value that is not known is neither true nor false, and so is its "not".

const QUOTED = /"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'(?=[\s()]|$)/,
  OTHER = /(==|!=|!~|<=|>=|[=<>~()])|([^\s"=<>~()!]+|!(?![=~]))/,
  FILTER_TOKEN = new RegExp(`\\s*(?:${QUOTED.source}|${OTHER.source})`, "y");
const COMPARED = new Set(["==", "=", "!=", "~", "!~", "<", "<=", ">", ">="]);
const ORDERED = {
  "==": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
};
const JOINTS = ["and", "or", "not"];
const UNKNOWN = ["unknown", "–"];

/** Why a filter cannot be read. */
class BadFilter extends Error {}

/**
 * Read a filter: {keep(row)}, or {error: a sentence}. columns: of rows.js; causes: code →
 * words. An empty filter keeps everything.
 */
export function filterOf(text, columns, causes = {}) {
  try {
    const tokens = tokensOf(text),
      isExpression = tokens.some(({ op }) => COMPARED.has(op)),
      test = isExpression ? new Reader(tokens, columns, causes).read() : wordsTest(text);
    return { keep: (row) => test(row) === true };
  } catch (error) {
    if (!(error instanceof BadFilter)) throw error;
    const names = columns.map(namesOf).join(", ");
    return { error: `${error.message}; a filter knows ${names}` };
  }
}

/** The names of a column in a filter. */
export function namesOf({ name, also }) {
  return also ? `${name} or ${also}` : name;
}

function tokensOf(text) {
  const tokens = [];
  FILTER_TOKEN.lastIndex = 0;
  while (text.slice(FILTER_TOKEN.lastIndex).trim()) {
    const from = FILTER_TOKEN.lastIndex,
      found = FILTER_TOKEN.exec(text);
    if (!found) throw new BadFilter(`the quote at “${text.slice(from).trim()}” is not closed`);
    const [, double, single, op, word] = found,
      quoted = double ?? single;
    tokens.push(quoted === undefined ? { op, word } : { quoted: unescaped(quoted) });
  }
  return tokens;
}

function unescaped(quoted) {
  return quoted.replace(/\\(.)/g, "$1");
}

/** Whether all words, and texts in quotes, occur in a row. */
function wordsTest(text) {
  const parts = [...text.matchAll(/"((?:[^"\\]|\\.)*)"|\S+/g)].map(([all, quoted]) =>
    (quoted === undefined ? all : unescaped(quoted)).toLowerCase(),
  );
  return (row) => parts.every((part) => row.searched.includes(part));
}

function both(a, b) {
  if (a === false || b === false) return false;
  return a === null || b === null ? null : true;
}

function opposite(a) {
  return a === null ? null : !a;
}

/** Reads an expression into one test of a row: true, false or null. */
class Reader {
  constructor(tokens, columns, causes) {
    Object.assign(this, { tokens, columns, causes });
    this.at = 0;
  }

  read() {
    const test = this._either();
    if (this._here) throw new BadFilter(`“and” or “or” is missing before “${shown(this._here)}”`);
    return test;
  }

  get _here() {
    return this.tokens[this.at];
  }

  /** Whether the next token is this word or bracket, which is then passed. */
  _takes(what) {
    const { word, op } = this._here ?? {},
      found = word?.toLowerCase() === what || op === what;
    if (found) this.at += 1;
    return found;
  }

  _either() {
    let test = this._both();
    while (this._takes("or")) {
      const [one, other] = [test, this._both()];
      test = (row) => opposite(both(opposite(one(row)), opposite(other(row))));
    }
    return test;
  }

  _both() {
    let test = this._one();
    while (this._takes("and")) {
      const [one, other] = [test, this._one()];
      test = (row) => both(one(row), other(row));
    }
    return test;
  }

  _one() {
    if (this._takes("not")) {
      const test = this._one();
      return (row) => opposite(test(row));
    }
    if (!this._takes("(")) return this._term();
    const test = this._either();
    if (!this._takes(")")) throw new BadFilter("a “)” is missing");
    return test;
  }

  _term() {
    const token = this._here;
    if (!token) throw new BadFilter("the filter ends too soon");
    if (token.op) throw new BadFilter(`a name is missing before “${token.op}”`);
    this.at += 1;
    const op = this._here?.op;
    if (COMPARED.has(op) && token.word) return this._comparison(token.word, op);
    if (JOINTS.includes(token.word?.toLowerCase()))
      throw new BadFilter(`something is missing before “${token.word}”`);
    return textTest("searched", (token.quoted ?? token.word).toLowerCase());
  }

  _comparison(name, op) {
    this.at += 1;
    const called = name.toLowerCase();
    const column = this.columns.find((each) => [each.name, each.also].includes(called));
    if (!column) throw new BadFilter(`“${name}” is not a column`);
    const token = this._here;
    if (!token || token.op || (token.word && JOINTS.includes(token.word.toLowerCase())))
      throw new BadFilter(`a value is missing after “${name} ${op}”`);
    const value = column.kind === "cause" ? this._causeWords() : (token.quoted ?? token.word);
    this.at += 1;
    return this._compared(column, op === "=" ? "==" : op, value, token.quoted !== undefined);
  }

  _compared(column, op, value, quoted) {
    const { name, kind } = column;
    const isFlat = op === "==" || op === "!=";
    if (kind === "cause") return this._causeTest(op, value);
    if (!quoted && isFlat && UNKNOWN.includes(value.toLowerCase()))
      return (row) => (row[name] === null) === (op === "==");
    if (kind === "number") return numberTest(name, op, value);
    if (op === "~") return textTest(name, value.toLowerCase());
    if (op === "!~") return negated(textTest(name, value.toLowerCase()));
    if (!isFlat) throw new BadFilter(`${name} is text, compared with ==, != or ~`);
    const wanted = value.trim();
    const test = (row) => (row[name] === null ? null : row[name].trim() === wanted);
    return op === "==" ? test : negated(test);
  }

  /** The next token, with those after it that are the words of a cause together with it. */
  _causeWords() {
    const from = this.at,
      all = Object.values(this.causes).map((words) => words.toLowerCase());
    let said = shown(this._here);
    for (let to = from + 1; this.tokens[to]?.word; to++) {
      const words = this.tokens
        .slice(from, to + 1)
        .map(shown)
        .join(" ");
      if (all.includes(words.toLowerCase())) [said, this.at] = [words, to];
    }
    return said;
  }

  /** A cause by its code or its words; one of its words is enough where no other cause has it. */
  _causeTest(op, value) {
    const wanted = value.trim().toLowerCase();
    const causes = Object.entries(this.causes).map(([code, words]) => [code, words.toLowerCase()]);
    const has = ([code, words]) => code.includes(wanted) || words.includes(wanted);
    if (op.endsWith("~")) {
      const codes = new Set(causes.filter(has).map(([code]) => code));
      return op === "~" ? codeTest(codes) : negated(codeTest(codes));
    }
    if (op !== "==" && op !== "!=") throw new BadFilter("cause is compared with ==, != or ~");
    const same = causes.filter((each) => each.includes(wanted));
    const hasWord = ([, words]) => ` ${words} `.includes(` ${wanted} `);
    const found = same.length ? same : causes.filter(hasWord);
    if (found.length !== 1) {
      const words = (found.length ? found : causes).map(([, each]) => each).join(", ");
      const are = found.length ? `may be ${words}` : `is none of: ${words}`;
      throw new BadFilter(`the cause “${value}” ${are}`);
    }
    const test = codeTest(new Set([found[0][0]]));
    return op === "==" ? test : negated(test);
  }
}

function shown({ quoted, op, word }) {
  return quoted ?? op ?? word;
}

function negated(test) {
  return (row) => opposite(test(row));
}

function textTest(name, wanted) {
  return (row) => (row[name] === null ? null : row[name].toLowerCase().includes(wanted));
}

function codeTest(codes) {
  return (row) => (row.cause === null ? null : codes.has(row.cause));
}

function numberTest(name, op, value) {
  const wanted = value.trim() === "" ? Number.NaN : Number(value);
  if (!ORDERED[op] || !Number.isFinite(wanted))
    throw new BadFilter(
      ORDERED[op]
        ? `${name} is a number, and “${value}” is none`
        : `${name} is a number, compared with ==, !=, <, <=, > or >=`,
    );
  return (row) => (row[name] === null ? null : ORDERED[op](row[name], wanted));
}
