// Package settings shows the settings that change while a cluster runs.
package settings
