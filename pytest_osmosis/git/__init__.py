"""The git repository that holds a workspace: which commit its code is, and worktrees of other commits."""
