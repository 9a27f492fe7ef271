package actors

// requests gathers requests of one kind, so that one statement serves those that came during the previous one.
type requests[R any] struct {
	gathered []R
	begun    bool // a statement is in progress, or due
}

// add adds a request. It reports whether a statement has to be begun for it.
func (r *requests[R]) add(request R) (first bool) {
	first = !r.begun
	r.gathered, r.begun = append(r.gathered, request), true
	return first
}

// next returns the requests of the next statement. It is called when one begins and when one ends. It returns none if
// there are none, and then the next request begins a statement.
func (r *requests[R]) next() (gathered []R) {
	gathered = r.gathered
	r.gathered, r.begun = nil, len(gathered) > 0
	return gathered
}
