// Package drain takes workers and nodes out of service and back, without losing requests:
// dynctl drain, resume, uncordon and restart.
package drain
