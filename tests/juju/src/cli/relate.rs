//! integrate and remove-relation.

use super::{Call, Done, failure, usage};

impl Call<'_> {
    pub(super) fn integrate(&self) -> Done {
        let [one, other] = self.options.words.as_slice() else {
            return Err(usage("an integration must involve two applications"));
        };
        let mut model = self.shared.lock();
        model.relate(one, other)?;
        model.synchronize();
        Ok(0)
    }

    pub(super) fn remove_relation(&self) -> Done {
        let mut model = self.shared.lock();
        let id = match self.options.words.as_slice() {
            [id] => id.parse().map_err(|_| usage(format!("invalid relation id {id:?}")))?,
            [one, other] => model.find_relation(one, other)?,
            _ => return Err(usage("a relation must involve two applications")),
        };
        if !model.relations.contains_key(&id) {
            return Err(failure(format!("relation {id} not found")));
        }
        model.remove_relation(id);
        Ok(0)
    }
}
