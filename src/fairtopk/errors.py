"""The one error a user of the library is meant to see."""


class InputError(ValueError):
    """What the caller gave cannot be used; the message says what, where and what to do.

    The command line prints it as one sentence and ends with exit code 2.
    """
