// Package dynlab runs commands of dynlab for verbs of dynctl, which does not link the engines that these need.
package dynlab
