"""The shell around the admission engine, and the controllers that carry its decisions into jobs and pods."""

from muster.controllers.quota.controller import QuotaController

__all__ = ["QuotaController"]
