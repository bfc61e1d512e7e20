"""The direction of lists."""

from enum import StrEnum


class OrderBy(StrEnum):
    UNSPECIFIED = "ORDER_BY_UNSPECIFIED"
    ASC = "ORDER_BY_ASC"
    DESC = "ORDER_BY_DESC"
