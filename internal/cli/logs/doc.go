// Package logs prints logs of workers and agents: from the agents, or from files of this
// machine when no cluster answers.
package logs
