package engine

// PartitionRows are the rows of all partitions of a projection, as a reset or a rebuild finds them.
type PartitionRows struct {
	Rows []int32
	// Lowest and Highest are the bounds of their checkpoints, and Epoch is the highest of their epochs.
	Lowest, Highest, Epoch int64
}

// Add adds the row of a partition.
func (p *PartitionRows) Add(row int32, checkpoint, epoch int64) {
	if len(p.Rows) == 0 {
		p.Lowest, p.Highest = checkpoint, checkpoint
	}
	p.Rows, p.Lowest, p.Highest = append(p.Rows, row), min(p.Lowest, checkpoint), max(p.Highest, checkpoint)
	p.Epoch = max(p.Epoch, epoch)
}

// ResultAt returns the result of a reset to a position. The store adds Head and Resolved.
func (p *PartitionRows) ResultAt(position int64) ResetResult {
	return ResetResult{Lowest: p.Lowest, Highest: p.Highest, Position: position, Epoch: p.Epoch + 1}
}
