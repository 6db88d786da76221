// Package get has the verbs that list: dynctl ps, and dynctl get with a kind of things each.
package get
