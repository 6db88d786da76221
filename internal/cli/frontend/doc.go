// Package frontend finds a cluster's HTTP frontends and says what to do about their errors.
package frontend
