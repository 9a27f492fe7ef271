package machine

// With these methods the compiler refuses values that are not a State, Input, Effect, Job, Result, RunStep or
// ReplayStep.

func (Working) isState()       {}
func (AwaitingTail) isState()  {}
func (Idle) isState()          {}
func (Reconnecting) isState()  {}
func (Failing) isState()       {}
func (RetryWait) isState()     {}
func (OutageWait) isState()    {}
func (EventWait) isState()     {}
func (AtGate) isState()        {}
func (FaultWait) isState()     {}
func (Misconfigured) isState() {}
func (Unconfirmed) isState()   {}
func (FeedFailed) isState()    {}
func (Halted) isState()        {}
func (Released) isState()      {}
func (Lost) isState()          {}

func (Started) isInput()        {}
func (LeaseDeadline) isInput()  {}
func (TailAdvanced) isInput()   {}
func (TailFailed) isInput()     {}
func (TailDropped) isInput()    {}
func (Revalidate) isInput()     {}
func (Unanswered) isInput()     {}
func (ServerAnswers) isInput()  {}
func (Resumed) isInput()        {}
func (CommandPending) isInput() {}
func (Tick) isInput()           {}
func (Drain) isInput()          {}
func (Done) isInput()           {}

func (Start) isEffect()     {}
func (Yield) isEffect()     {}
func (CutShort) isEffect()  {}
func (Cancel) isEffect()    {}
func (Arm) isEffect()       {}
func (Publish) isEffect()   {}
func (Subscribe) isEffect() {}
func (AskGate) isEffect()   {}
func (Drained) isEffect()   {}
func (LeaseLost) isEffect() {}
func (Log) isEffect()       {}

func (Load) isJob()        {}
func (Apply) isJob()       {}
func (Record) isJob()      {}
func (Note) isJob()        {}
func (WriteReason) isJob() {}
func (Ask) isJob()         {}
func (Move) isJob()        {}
func (Halt) isJob()        {}
func (Advance) isJob()     {}
func (Command) isJob()     {}

func (Faulted) isResult()      {}
func (OK) isResult()           {}
func (Loaded) isResult()       {}
func (Recorded) isResult()     {}
func (Answer) isResult()       {}
func (Advanced) isResult()     {}
func (RunResult) isResult()    {}
func (ReplayResult) isResult() {}

func (ReadPage) isRunStep()     {}
func (CountFailed) isRunStep()  {}
func (ListParked) isRunStep()   {}
func (FindParked) isRunStep()   {}
func (BeginAttempt) isRunStep() {}
func (ApplyBatch) isRunStep()   {}
func (EndRun) isRunStep()       {}

func (ScheduleReplay) isReplayStep()     {}
func (FindCommand) isReplayStep()        {}
func (Discard) isReplayStep()            {}
func (BeginReplay) isReplayStep()        {}
func (ReadEvent) isReplayStep()          {}
func (ApplyReplay) isReplayStep()        {}
func (RecordFailedReplay) isReplayStep() {}
func (EndCommandRun) isReplayStep()      {}
