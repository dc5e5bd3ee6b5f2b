"""What scores a rollout: eval functions (simple and full mode) and Graders."""
