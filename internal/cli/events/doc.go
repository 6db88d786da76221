// Package events prints what happens in a cluster: dynctl events, as it comes, and dynctl get
// events, as a list.
package events
