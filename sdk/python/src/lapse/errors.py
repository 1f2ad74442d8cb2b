"""What is refused."""


class LapseError(Exception):
    """What lapse, or the way to it, refused.

    `code` is the status of the reply, 400 to 504, and `error` its name, such as
    `document_not_found`. The message says what was wrong and what is allowed. If `retryable`,
    the same call may succeed later.
    """

    def __init__(self, code: int, error: str, message: str, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.error = error
        self.retryable = code in (429, 503, 504) if retryable is None else retryable

    def __reduce__(self) -> tuple[type, tuple[int, str, str, bool]]:
        return LapseError, (self.code, self.error, str(self), self.retryable)  # to another process
