// Package top is dynctl top: the dashboard, or the same data printed, recorded and replayed.
package top
