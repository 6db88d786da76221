// Package credentials shows, hands on and renews what programs of a cluster share: dynctl
// credentials, and dynctl join on another machine.
package credentials
