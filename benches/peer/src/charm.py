import ops


class Charm(ops.CharmBase):
    def __init__(self, framework):
        super().__init__(framework)
        framework.observe(self.on.update_status, self.nothing)
        framework.observe(self.on.config_changed, self.nothing)

    def nothing(self, _event):
        pass


ops.main(Charm)
