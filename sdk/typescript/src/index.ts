export type { Duration } from "./duration.js";
export { LapseError } from "./errors.js";
export type { Event, FeedOptions, Item } from "./types.js";
