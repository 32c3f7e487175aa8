"""Finds the misspelt keyword because of which a text is no SQL."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import tokens

from dagflow.suggestions import nearest
from operators.expressions.expression_error import ExpressionError

_KEYWORDS = (
    *("select", "distinct", "from", "where", "group by", "order by", "having", "limit", "with", "as", "on", "using"),
    *("join", "left join", "group", "order", "by", "asc", "desc", "and", "or", "not", "in", "is", "null", "between"),
    *("like", "ilike", "case", "when", "then", "else", "end", "cast", "try_cast", "extract", "interval", "left"),
)
_MOST_WORDS = 50
_LEAST_LETTERS = 2


def with_keyword(error: ExpressionError, text: str, read: Callable[[str], object]) -> ExpressionError:
    """The error, or one that names a misspelt keyword: one with which the text can be read, or be read further.

    Args:
        error: The mistake.
        text: The text.
        read: Reads a text, or raises an ExpressionError.
    """
    try:
        words = [token for token in tokens.Tokenizer().tokenize(text) if token.token_type.name == "VAR"]
    except Exception:  # sqlglot refuses what is no SQL at all
        return error
    for word in words[:_MOST_WORDS]:
        keyword = nearest(word.text, _KEYWORDS) if len(word.text) >= _LEAST_LETTERS else None
        if keyword is None:
            continue
        try:
            read(f"{text[: word.start]}{keyword}{text[word.end + 1 :]}")
        except ExpressionError as other:
            # Other words may be misspelt as well.
            if other.offset <= max(error.offset, word.end) + len(keyword) - len(word.text):
                continue
        return ExpressionError(f"'{word.text}' is not expected here; did you mean '{keyword}'?", text, word.start)
    return error
