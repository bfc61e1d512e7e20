"""What every controller stands on: clock, informers, work queues, reconcile loops, leases."""
