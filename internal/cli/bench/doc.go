// Package bench measures a server under load: dynctl bench.
package bench
