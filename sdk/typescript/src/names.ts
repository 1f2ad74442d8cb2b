import { LapseError } from "./errors.js";

/** Throws a LapseError unless a database may have this name. */
export function checkDatabase(name: string): void {
  if (!/^[a-z0-9][a-z0-9-]{0,31}$/.test(name)) {
    throw new LapseError(400, "bad_request", `database name ${quoted(name)}: use 1 to 32 of a-z, 0-9 and -, not starting with -`);
  }
}

/** Throws a LapseError unless a collection may have this name. */
export function checkCollection(name: string): void {
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(name)) {
    throw new LapseError(400, "bad_request", `collection name ${quoted(name)}: use 1 to 64 of A-Z, a-z, 0-9, _ and -, starting with a letter or digit`);
  }
}

/** Returns an id as a token of a subject. Throws a LapseError `bad_id` if it is illegal. */
export function tokenOf(id: string): string {
  if (/^[A-Za-z0-9_=:@~-]{1,255}$/.test(id)) {
    return id;
  }
  checkId(id);
  return encodeURIComponent(id)
    .replace(/%3A|%3D|%40/g, decodeURIComponent)
    .replace(/[.!*'()]/g, (char) => "%" + char.charCodeAt(0).toString(16).toUpperCase());
}

/** Returns the id of a token, the inverse of tokenOf. Throws a LapseError `bad_id` for a malformed token. */
export function idOf(token: string): string {
  if (!/^(?:[A-Za-z0-9_=:@~-]|%[0-9A-Fa-f]{2})*$/.test(token)) {
    throw badId(`${quoted(token)} has a malformed escape or a raw byte: write every byte outside A-Z a-z 0-9 _ - = : @ ~ as %XX`);
  }
  let id: string;
  try {
    id = decodeURIComponent(token);
  } catch {
    throw badId(`${quoted(token)} is not UTF-8`);
  }
  checkId(id);
  return id;
}

/** Throws a LapseError `bad_id` unless a document may have this id. */
export function checkId(id: string): void {
  if (typeof id !== "string" || id === "") {
    throw badId("is empty: use 1 to 255 bytes of UTF-8");
  }
  if (/\p{Surrogate}/u.test(id)) { // half a pair
    throw badId(`${quoted(id)} is not UTF-8`);
  }
  if (/\p{Control}/u.test(id)) {
    throw badId(`${quoted(id)} has a control character`);
  }
  const size = new TextEncoder().encode(id).length;
  if (size > 255) {
    throw badId(`has ${size} bytes: at most 255 are allowed`);
  }
}

function badId(what: string): LapseError {
  return new LapseError(400, "bad_id", `the id ${what}`);
}

function quoted(name: string): string {
  return JSON.stringify(name.slice(0, 80));
}
