package projection

// Finding is something that a person should look at: a fault of a store, of its surroundings, or of projections.
type Finding struct {
	// Check is the name of the check that found it, such as "settings" or "dead letters".
	Check string `json:"check"`
	// Problem says what is wrong, and Advice what to do.
	Problem string `json:"problem"`
	Advice  string `json:"advice"`
}
