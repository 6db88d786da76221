// Package drain takes workers and nodes out of service and back, without losing requests:
// dynctl drain, sleep, resume, wake, uncordon and restart.
package drain
