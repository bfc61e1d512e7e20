"""What quota measures, under Kueue's names: dashboards made for Kueue show the same here."""

from muster.controllers.quota.metrics.counting import QuotaMetrics

__all__ = ["QuotaMetrics"]
