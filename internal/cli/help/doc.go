// Package help prints the help of commands, and the topics that belong to none.
package help
