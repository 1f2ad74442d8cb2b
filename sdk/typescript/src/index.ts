export { Collection } from "./collection.js";
export type { Duration } from "./duration.js";
export { LapseError } from "./errors.js";
export type { Handler, HandleOptions } from "./handle.js";
export { parseBigInt } from "./json.js";
export { Lapse } from "./lapse.js";
export type { Traced, Tracer } from "./tracer.js";
export type {
  CollectionInfo, CountOptions, Event, FeedOptions, Forecast, ForecastOptions, Item, Operation, Options, Page, Properties, QueryOptions, ReadOptions, Result, Status,
  Touched, TouchOptions, WriteOptions,
} from "./types.js";
