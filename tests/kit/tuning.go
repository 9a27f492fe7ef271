package kit

import (
	"github.com/millrace-go/millrace"
	"github.com/millrace-go/millrace/internal/tuning"
)

// On returns the configuration with that store, and with the settings that the store before it carried.
func On(config millrace.Config, s millrace.Store) millrace.Config {
	tuned, ok := config.Store.(tuning.Settings)
	if !ok {
		config.Store = s
		return config
	}
	tuned.Store = s
	config.Store = tuned
	return config
}

// Tuned returns the configuration with changed settings.
func Tuned(config millrace.Config, change func(s *tuning.Settings)) millrace.Config {
	tuned, ok := config.Store.(tuning.Settings)
	if !ok && config.Store != nil {
		tuned.Store = config.Store
	}
	change(&tuned)
	config.Store = tuned
	return config
}
