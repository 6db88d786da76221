// Package certs makes certificates for servers of a cluster and lists them: dynctl certs.
package certs
