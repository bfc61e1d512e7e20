"""What runs around a task's program, inside of the task: it ships logs, fetches files, says when a service is ready.

These modules are sent to the node and run there by whichever Python the task has, from 3.8 on, without muster. So they
use the standard library only, and import each other relatively.
"""
