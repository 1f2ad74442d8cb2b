/** What lapse, or the way to it, refused. */
export class LapseError extends Error {
  /**
   * @param code the status of the reply, 400 to 504
   * @param error the name of the error, such as `document_not_found`
   * @param message what was wrong and what is allowed
   * @param retryable whether the same call may succeed later
   */
  constructor(
    readonly code: number,
    readonly error: string,
    message: string,
    readonly retryable: boolean = code === 429 || code === 503 || code === 504,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = "LapseError";
  }
}
