// Package topology compares and changes what is declared: dynctl diff, scale and rollback.
package topology
